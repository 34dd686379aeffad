define void @sums_of_rows(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %end1 ]
  %v0 = mul i64 %i0, 8
  %p1 = getelementptr float, ptr %buffer1, i64 %v0
  br label %loop1
loop1:
  %i1 = phi i64 [ 0, %loop0 ], [ %i1.next, %loop1 ]
  %acc0 = phi float [ 0x0000000000000000, %loop0 ], [ %v2, %loop1 ]
  %p2 = getelementptr float, ptr %p1, i64 %i1
  %v1 = load float, ptr %p2, align 4
  %v2 = fadd float %acc0, %v1
  %v3 = add nsw i64 %i1, 1
  %i1.next = call i64 @llvm.expect.i64(i64 %v3, i64 1)
  %v4 = icmp slt i64 %i1.next, 8
  br i1 %v4, label %loop1, label %end1
end1:
  %p3 = getelementptr float, ptr %buffer0, i64 %i0
  store float %v2, ptr %p3, align 4
  %v5 = add nsw i64 %i0, 1
  %i0.next = call i64 @llvm.expect.i64(i64 %v5, i64 1)
  %v6 = icmp slt i64 %i0.next, 3
  br i1 %v6, label %loop0, label %end0
end0:
  ret void
}
declare i64 @llvm.expect.i64(i64, i64)
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
