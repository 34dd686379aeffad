define void @bools(ptr noalias readonly %buffers, ptr readonly %vars, i64 %thread, ptr %scratch) #0 {
entry:
  %buffer0 = load ptr, ptr %buffers, align 8
  %p0 = getelementptr ptr, ptr %buffers, i64 1
  %buffer1 = load ptr, ptr %p0, align 8
  %v0 = load <8 x double>, ptr %buffer1, align 8
  %v1 = fcmp olt <8 x double> %v0, splat (double 0xBFF0000000000000)
  %v2 = fcmp olt <8 x double> splat (double 0x3FF0000000000000), %v0
  %v3 = or <8 x i1> %v1, %v2
  %v4 = zext <8 x i1> %v3 to <8 x i8>
  store <8 x i8> %v4, ptr %buffer0, align 1
  ret void
}
attributes #0 = { nounwind "no-trapping-math"="true" "prefer-vector-width"="512" }
