/* Two loops of ggml-cpu in a form that compilers may vectorise.

   Forced into the C++ files of ggml-cpu (g++ -include), which use them in the place of those of
   ggml/src/ggml-cpu/vec.h; in any other file nothing happens. */

#if defined(__cplusplus) && __has_include("vec.h") && __has_include("simd-mappings.h")

#include "vec.h"

__attribute__((used)) static const char corral_fast_loops[] = "corral_fast_loops";

/* The greatest of n values. One running maximum may not be vectorised, as a NaN among the values
   would come out otherwise; sixteen of them are one instruction. */
inline static void corral_vec_max_f32(const int n, float * s, const float * x) {
    constexpr int LANES = 16;
    float lanes[LANES];
    for (int lane = 0; lane < LANES; ++lane) {
        lanes[lane] = -INFINITY;
    }
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; ++lane) {
            lanes[lane] = lanes[lane] > x[i + lane] ? lanes[lane] : x[i + lane];
        }
    }
    float max = -INFINITY;
    for (int lane = 0; lane < LANES; ++lane) {
        max = max > lanes[lane] ? max : lanes[lane];
    }
    for (; i < n; ++i) {
        max = max > x[i] ? max : x[i];
    }
    *s = max;
}
#define ggml_vec_max_f32 corral_vec_max_f32

/* GELU by the formula that ggml keeps a table of in float16, x * (1 + tanh(u)) / 2: that is
   x * sigmoid(2 u), and with z = 2 u = x * slope it is z * sigmoid(z) / slope, or silu(z) / slope. */
inline static void corral_vec_gelu_f32(const int n, float * y, const float * x) {
    constexpr int BLOCK = 256;
    float z[BLOCK];
    float slope[BLOCK];
    for (int first = 0; first < n; first += BLOCK) {
        const int size = n - first < BLOCK ? n - first : BLOCK;
        for (int i = 0; i < size; ++i) {
            const float value = x[first + i];
            slope[i] = 2.0f * SQRT_2_OVER_PI * (1.0f + GELU_COEF_A * value * value);
            z[i] = value * slope[i];
        }
        ggml_vec_silu_f32(size, z, z);
        for (int i = 0; i < size; ++i) {
            y[first + i] = z[i] / slope[i];
        }
    }
}
#define ggml_vec_gelu_f32 corral_vec_gelu_f32

#endif
