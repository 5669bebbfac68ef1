/* image.h - how large the code is that a program hands to the driver. */
#ifndef EDGEGPU_LIMITER_IMAGE_H
#define EDGEGPU_LIMITER_IMAGE_H

#include <stdint.h>

#define IMAGE_MOST (64ull << 20)	/* of a text no more is looked at */

/* 0: nobody knows. No byte is read that the driver would not read. */
uint64_t image_bytes(const void *image);
uint64_t image_file_bytes(const char *path);

/* What an image that the driver has loaded takes of the card at most, beside what the driver adds: an ELF file and the
 * variables that it has no bytes of. UINT64_MAX: its form does not say. */
uint64_t image_most(const void *image);

#endif
