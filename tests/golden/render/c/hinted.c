/* hinted
   x0: float32 [64], written
   x1: float32 [64], read */

#include <stdbool.h>
#include <stdint.h>

typedef float float32x16_in_memory __attribute__((vector_size(64), aligned(4), may_alias));
typedef float float32x16 __attribute__((vector_size(64)));

static inline __attribute__((always_inline)) void stream_float32x16(void *p, float32x16 x)
{
#ifdef __clang__
    if (((uintptr_t)p & (sizeof x - 1)) == 0) {
        __builtin_nontemporal_store(x, (float32x16 *)p);
        return;
    }
#endif
    *(float32x16_in_memory *)p = x;
}

void hinted(void **buffers, const int64_t *vars, int64_t thread, void *scratch)
{
    float *x0 = buffers[0];
    float *x1 = buffers[1];
    for (int32_t i0 = 0; i0 < 4; i0++) {
        const int32_t v0 = i0 * 16;
        const float32x16 v1 = *(float32x16_in_memory *)(x1 + v0);
        stream_float32x16(x0 + v0, v1);
        const int32_t v2 = v0 + 32;
        __builtin_prefetch(x1 + v2, 0);
        __builtin_prefetch(x0 + v2, 1);
    }
#ifdef __x86_64__
    __builtin_ia32_sfence();
#endif
}
