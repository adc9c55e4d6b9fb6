#include "base/sized.h"

#include "base/error.h"

#include <stdint.h>
#include <string.h>

/* No version of a struct is larger. */
#define STRUCT_BYTES_MAX 4096

int sized_take(void *out, size_t size, const void *in, size_t in_size, hapax_error *err)
{
    memset(out, 0, size);
    if (in_size == 0 || in_size > STRUCT_BYTES_MAX) {
        return error_set(err, HAPAX_E_ARGUMENT, 0, "the member `size` is not set to the size of its struct");
    }
    const uint8_t *bytes = in;
    for (size_t i = size; i < in_size; i++) {
        if (bytes[i] != 0) {
            return error_set(err, HAPAX_E_ARGUMENT, 0, "a member that this version doesn't know is set");
        }
    }
    memcpy(out, in, in_size < size ? in_size : size);
    return 0;
}
