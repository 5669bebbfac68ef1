/* text.h - the little that is done with text, without libc (system.h says why). */
#ifndef EDGEGPU_LIMITER_TEXT_H
#define EDGEGPU_LIMITER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline size_t text_length(const char *text)
{
	size_t length = 0;

	while (text[length] != '\0')
		length++;
	return length;
}

/* The length of what `start` is at the beginning of a text; 0: it is not there. */
static inline size_t text_begins(const char *text, const char *start)
{
	size_t length = 0;

	for (; start[length] != '\0'; length++)
		if (text[length] != start[length])
			return 0;
	return length;
}

static inline bool text_equal(const char *one, const char *other)
{
	while (*one != '\0' && *one == *other) {
		one++;
		other++;
	}
	return *one == *other;
}

static inline const char *text_find(const char *text, char what)
{
	for (; *text != '\0'; text++)
		if (*text == what)
			return text;
	return NULL;
}

/* The digits that a text begins with; *end is what follows. False: none, or more than 64 bits hold. */
static inline bool text_number(const char *text, uint64_t *out, const char **end)
{
	const char *first = text;

	for (*out = 0; *text >= '0' && *text <= '9'; text++)
		if (__builtin_mul_overflow(*out, (uint64_t)10, out) ||
		    __builtin_add_overflow(*out, (uint64_t)(*text - '0'), out))
			return false;
	*end = text;
	return text != first;
}

/* Write a number behind what stands before `at`, and a 0; returns the end. There is room for 20 digits. */
static inline char *text_put_number(char *at, uint64_t number)
{
	char digits[20];
	int count = 0;

	do
		digits[count++] = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	while (count > 0)
		*at++ = digits[--count];
	*at = '\0';
	return at;
}

static inline char *text_put(char *at, const char *text)
{
	while (*text != '\0')
		*at++ = *text++;
	*at = '\0';
	return at;
}

#endif
