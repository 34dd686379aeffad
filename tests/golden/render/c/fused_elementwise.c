/* fused_elementwise
   x0: float32 [64], read and written
   x1: float32 [64], read */

#include <stdbool.h>
#include <stdint.h>

typedef float float32x16_in_memory __attribute__((vector_size(64), aligned(4), may_alias));
typedef float float32x16 __attribute__((vector_size(64)));
typedef int32_t int32x16 __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) float32x16 splat_float32x16(float x)
{
    return (float32x16){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}

static inline __attribute__((always_inline)) float32x16 fma_float32x16(float32x16 a, float32x16 b, float32x16 c)
{
    float32x16 result;
    for (int lane = 0; lane < 16; lane++)
        result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
    return result;
}

static inline __attribute__((always_inline)) float32x16 select_float32x16(int32x16 mask, float32x16 a, float32x16 b)
{
    return (float32x16)((mask & (int32x16)a) | (~mask & (int32x16)b));
}

void fused_elementwise(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    float *x0 = buffers[0];
    float *x1 = buffers[1];
    for (int32_t i0 = 0; i0 < 4; i0++) {
        const int32_t v0 = i0 * 16;
        const float32x16 v1 = *(float32x16_in_memory *)(x1 + v0);
        const float32x16 v2 = *(float32x16_in_memory *)(x0 + v0);
        const float32x16 v3 = select_float32x16((int32x16)(v1 <= splat_float32x16(0.0f)), splat_float32x16(0.0f), fma_float32x16(v1, splat_float32x16(2.0f), v2));
        *(float32x16_in_memory *)(x0 + v0) = v3;
    }
}
