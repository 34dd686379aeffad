/* sums_of_rows
   x0: float32 [3], written
   x1: float32 [24], read */

#include <stdbool.h>
#include <stdint.h>

void sums_of_rows(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    float *x0 = buffers[0];
    float *x1 = buffers[1];
    float acc0;
    for (int32_t i0 = 0; i0 < 3; i0++) {
        acc0 = 0.0f;
        const int32_t v0 = i0 * 8;
        for (int32_t i1 = 0; i1 < 8; i1++) {
            const float v1 = x1[v0 + (i1 * 1)];
            acc0 = acc0 + v1;
        }
        const float v2 = acc0;
        x0[i0] = v2;
    }
}
