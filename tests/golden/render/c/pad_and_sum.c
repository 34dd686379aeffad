/* r_4_3
   x0: float32 [4], written
   x1: float32 [12], read */

#include <stdbool.h>
#include <stdint.h>

typedef float float32x4 __attribute__((vector_size(16)));
typedef float float32x4_in_memory __attribute__((vector_size(16), aligned(4), may_alias));

static inline __attribute__((always_inline)) float32x4 splat_float32x4(float x)
{
    return (float32x4){x, x, x, x};
}

void r_4_3(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    float *x0 = buffers[0];
    float *x1 = buffers[1];
    const float v0 = x1[0];
    const float v1 = x1[3];
    const float v2 = x1[6];
    const float v3 = x1[9];
    const float32x4 v4 = (float32x4){v0, v1, v2, v3};
    const float v5 = x1[1];
    const float v6 = x1[4];
    const float v7 = x1[7];
    const float v8 = x1[10];
    const float32x4 v9 = (float32x4){v5, v6, v7, v8};
    const float v10 = x1[2];
    const float v11 = x1[5];
    const float v12 = x1[8];
    const float v13 = x1[11];
    const float32x4 v14 = (float32x4){v10, v11, v12, v13};
    *(float32x4_in_memory *)x0 = ((v4 + v9) + v14) + splat_float32x4(0.0f);
}
