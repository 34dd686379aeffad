define void @hinted(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  %v0 = ptrtoint ptr %buffer0 to i64
  %v1 = and i64 %v0, 63
  %aligned0 = icmp eq i64 %v1, 0
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %stream0.end ]
  %p1 = getelementptr float, ptr %buffer1, i64 %i0
  %v2 = load <16 x float>, ptr %p1, align 4
  %p2 = getelementptr float, ptr %buffer0, i64 %i0
  br i1 %aligned0, label %stream0.past, label %stream0.plain
stream0.past:
  store <16 x float> %v2, ptr %p2, align 64, !nontemporal !0
  br label %stream0.end
stream0.plain:
  store <16 x float> %v2, ptr %p2, align 4
  br label %stream0.end
stream0.end:
  %p3 = getelementptr float, ptr %p1, i64 32
  call void @llvm.prefetch.p0(ptr %p3, i32 0, i32 3, i32 1)
  %p4 = getelementptr float, ptr %p2, i64 32
  call void @llvm.prefetch.p0(ptr %p4, i32 1, i32 3, i32 1)
  %v3 = add nsw i64 %i0, 16
  %i0.next = call i64 @llvm.expect.i64(i64 %v3, i64 16)
  %v4 = icmp slt i64 %i0.next, 64
  br i1 %v4, label %loop0, label %end0
end0:
  call void @llvm.x86.sse.sfence()
  ret void
}
declare i64 @llvm.expect.i64(i64, i64)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare void @llvm.x86.sse.sfence()
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
!0 = !{i32 1}
