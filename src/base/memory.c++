#include "base/memory.h"

#include <cstdlib>  // defines __GLIBC__ where it applies

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace capstan {

void keepHeapForStreams() {
#ifdef __GLIBC__
  // Setting one of them stops glibc from adapting the others, so both are set.
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

void giveHeapBack() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace capstan
