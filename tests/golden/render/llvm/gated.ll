define void @gated(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %gate0.end ]
  %v0 = trunc i64 %i0 to i32
  %v1 = mul nsw i32 %v0, 4
  %v2 = insertelement <4 x i32> poison, i32 %v1, i64 0
  %v3 = shufflevector <4 x i32> %v2, <4 x i32> poison, <4 x i32> zeroinitializer
  %v4 = add <4 x i32> %v3, <i32 0, i32 1, i32 2, i32 3>
  %v5 = icmp slt <4 x i32> %v4, splat (i32 5)
  %v6 = mul i64 %i0, 4
  %p1 = getelementptr i32, ptr %buffer1, i64 %v6
  %v7 = call <4 x i32> @llvm.masked.load.v4i32.p0(ptr %p1, i32 4, <4 x i1> %v5, <4 x i32> splat (i32 0))
  %v8 = extractelement <4 x i32> %v7, i64 0
  %v9 = icmp slt i32 %v0, 1
  %p2 = getelementptr i32, ptr %buffer0, i64 %v6
  br i1 %v9, label %gate0.do, label %gate0.end
gate0.do:
  store i32 %v8, ptr %p2, align 4
  br label %gate0.end
gate0.end:
  %v10 = add nsw i64 %i0, 1
  %i0.next = call i64 @llvm.expect.i64(i64 %v10, i64 1)
  %v11 = icmp slt i64 %i0.next, 2
  br i1 %v11, label %loop0, label %end0
end0:
  ret void
}
declare i64 @llvm.expect.i64(i64, i64)
declare <4 x i32> @llvm.masked.load.v4i32.p0(ptr, i32, <4 x i1>, <4 x i32>)
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
