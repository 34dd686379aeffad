define void @fused_elementwise(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i0.next, %loop0 ]
  %p1 = getelementptr float, ptr %buffer1, i64 %i0
  %v0 = load <16 x float>, ptr %p1, align 4
  %p2 = getelementptr float, ptr %buffer0, i64 %i0
  %v1 = load <16 x float>, ptr %p2, align 4
  %v2 = call <16 x float> @llvm.fma.v16f32(<16 x float> %v0, <16 x float> splat (float 0x4000000000000000), <16 x float> %v1)
  %v3 = fcmp ole <16 x float> %v0, splat (float 0x0000000000000000)
  %v4 = select <16 x i1> %v3, <16 x float> splat (float 0x0000000000000000), <16 x float> %v2
  store <16 x float> %v4, ptr %p2, align 4
  %v5 = add nsw i64 %i0, 16
  %i0.next = call i64 @llvm.expect.i64(i64 %v5, i64 16)
  %v6 = icmp slt i64 %i0.next, 64
  br i1 %v6, label %loop0, label %end0
end0:
  ret void
}
declare i64 @llvm.expect.i64(i64, i64)
declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
