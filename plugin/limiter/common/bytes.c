/* bytes.c - what the compiler calls for copies and fills, and compares: this library's own (system.h says why).
 *
 * Hidden, so that no other library's stands in for it, and it stands in for none. */
#include <stddef.h>

#define OWN __attribute__((visibility("hidden"), used, noinline))
#define ORDERED(at) __asm__ volatile("" : "+r"(at))	/* the compiler makes no call of these out of a loop */

OWN void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
	char *out = to;
	const char *in = from;

	for (; bytes > 0; bytes--) {
		*out++ = *in++;
		ORDERED(out);
	}
	return to;
}

OWN void *memmove(void *to, const void *from, size_t bytes)
{
	char *out = to;
	const char *in = from;

	if ((size_t)(out - in) >= bytes)
		return memcpy(to, from, bytes);
	while (bytes-- > 0) {
		out[bytes] = in[bytes];
		ORDERED(out);
	}
	return to;
}

OWN void *memset(void *to, int value, size_t bytes)
{
	char *out = to;

	for (; bytes > 0; bytes--) {
		*out++ = (char)value;
		ORDERED(out);
	}
	return to;
}

OWN int memcmp(const void *one, const void *other, size_t bytes)
{
	const unsigned char *a = one, *b = other;

	for (; bytes > 0; bytes--, a++, b++)
		if (*a != *b)
			return *a < *b ? -1 : 1;
	return 0;
}
