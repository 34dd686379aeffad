define void @r_4_3(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  %v0 = load float, ptr %buffer1, align 4
  %p1 = getelementptr float, ptr %buffer1, i64 3
  %v1 = load float, ptr %p1, align 4
  %p2 = getelementptr float, ptr %buffer1, i64 6
  %v2 = load float, ptr %p2, align 4
  %p3 = getelementptr float, ptr %buffer1, i64 9
  %v3 = load float, ptr %p3, align 4
  %v4 = insertelement <4 x float> poison, float %v0, i64 0
  %v5 = insertelement <4 x float> %v4, float %v1, i64 1
  %v6 = insertelement <4 x float> %v5, float %v2, i64 2
  %v7 = insertelement <4 x float> %v6, float %v3, i64 3
  %p4 = getelementptr float, ptr %buffer1, i64 1
  %v8 = load float, ptr %p4, align 4
  %p5 = getelementptr float, ptr %buffer1, i64 4
  %v9 = load float, ptr %p5, align 4
  %p6 = getelementptr float, ptr %buffer1, i64 7
  %v10 = load float, ptr %p6, align 4
  %p7 = getelementptr float, ptr %buffer1, i64 10
  %v11 = load float, ptr %p7, align 4
  %v12 = insertelement <4 x float> poison, float %v8, i64 0
  %v13 = insertelement <4 x float> %v12, float %v9, i64 1
  %v14 = insertelement <4 x float> %v13, float %v10, i64 2
  %v15 = insertelement <4 x float> %v14, float %v11, i64 3
  %v16 = fadd <4 x float> %v7, %v15
  %p8 = getelementptr float, ptr %buffer1, i64 2
  %v17 = load float, ptr %p8, align 4
  %p9 = getelementptr float, ptr %buffer1, i64 5
  %v18 = load float, ptr %p9, align 4
  %p10 = getelementptr float, ptr %buffer1, i64 8
  %v19 = load float, ptr %p10, align 4
  %p11 = getelementptr float, ptr %buffer1, i64 11
  %v20 = load float, ptr %p11, align 4
  %v21 = insertelement <4 x float> poison, float %v17, i64 0
  %v22 = insertelement <4 x float> %v21, float %v18, i64 1
  %v23 = insertelement <4 x float> %v22, float %v19, i64 2
  %v24 = insertelement <4 x float> %v23, float %v20, i64 3
  %v25 = fadd <4 x float> %v16, %v24
  %v26 = fadd <4 x float> %v25, splat (float 0x0000000000000000)
  store <4 x float> %v26, ptr %buffer0, align 4
  ret void
}
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
