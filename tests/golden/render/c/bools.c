/* bools
   x0: bool [8], written
   x1: float64 [8], read */

#include <stdbool.h>
#include <stdint.h>

typedef double float64x8_in_memory __attribute__((vector_size(64), aligned(8), may_alias));
typedef double float64x8 __attribute__((vector_size(64)));
typedef int64_t int64x8 __attribute__((vector_size(64)));
typedef uint8_t uint8x8_in_memory __attribute__((vector_size(8), aligned(1), may_alias));
typedef uint8_t uint8x8 __attribute__((vector_size(8)));
typedef int8_t int8x8 __attribute__((vector_size(8)));

static inline __attribute__((always_inline)) float64x8 splat_float64x8(double x)
{
    return (float64x8){x, x, x, x, x, x, x, x};
}

void bools(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    uint8_t *x0 = buffers[0];
    double *x1 = buffers[1];
    const float64x8 v0 = *(float64x8_in_memory *)x1;
    const int64x8 v1 = (int64x8)(v0 < splat_float64x8(-1.0)) | (int64x8)(splat_float64x8(1.0) < v0);
    *(uint8x8_in_memory *)x0 = (uint8x8)(-__builtin_convertvector(v1, int8x8));
}
