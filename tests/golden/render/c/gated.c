/* gated
   x0: int32 [5], written
   x1: int32 [5], read */

#include <stdbool.h>
#include <stdint.h>

typedef int32_t int32x4 __attribute__((vector_size(16)));
typedef uint32_t uint32x4 __attribute__((vector_size(16)));

static inline __attribute__((always_inline)) int32x4 splat_int32x4(int32_t x)
{
    return (int32x4){x, x, x, x};
}

void gated(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    int32_t *x0 = buffers[0];
    int32_t *x1 = buffers[1];
    for (int32_t i0 = 0; i0 < 2; i0++) {
        const int32_t v0 = i0 * 4;
        const int32x4 v1 = (int32x4)((uint32x4)splat_int32x4(v0) + (uint32x4)(int32x4){0, 1, 2, 3});
        const int32x4 mask0 = (int32x4)(v1 < splat_int32x4(5));
        int32x4 v2 = splat_int32x4(0);
        for (int lane = 0; lane < 4; lane++)
            if (mask0[lane]) v2[lane] = x1[v0 + lane];
        const int32_t v3 = v2[0];
        if (i0 < 1) x0[v0] = v3;
    }
}
