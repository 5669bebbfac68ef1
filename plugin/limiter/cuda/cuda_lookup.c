/* cuda_lookup.c - cuGetProcAddress: the way by which the CUDA runtime finds every function.
 *
 * The driver is asked first, with the program's own version and flags; the hook is chosen by the
 * pointer that it returned, since a name alone stands for functions of different arguments. A pointer
 * that is no known form of a function that we stand in is withheld: it could take memory unseen. A
 * form that the list passes on is a known one. */
#include <stdbool.h>

#include "charge.h"
#include "text.h"

/* Generated: the functions that have a hook, and their hooks. */
struct hooked {
	int function;
	void *hook;
};

extern const struct hooked hooked_functions[];
extern const int hooked_count;

/* The functions of the list whose names differ in version and stream alone have one stem. */
static size_t stem(const char *name)
{
	size_t length = text_length(name);

	if (length > 5 && (text_equal(name + length - 5, "_ptsz") ||
			   text_equal(name + length - 5, "_ptds")))
		length -= 5;
	if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v' &&
	    name[length - 1] >= '2' && name[length - 1] <= '9')
		length -= 3;
	return length;
}

static bool same_stem(const char *name, const char *symbol)
{
	size_t length = stem(name), same = 0;

	while (same < length && name[same] == symbol[same])
		same++;
	return same == length && length == stem(symbol);
}

/* Whether the driver gave a form of this name that the list has. */
static bool is_listed(const char *symbol, const void *given)
{
	for (int function = 0; function < FN_COUNT; function++)
		if (same_stem(driver_names[function], symbol) && driver_find(function) == given)
			return true;
	return false;
}

/* What the program gets for what the driver gave; NULL: nothing. */
static void *stand_in(const char *symbol, void *given)
{
	bool guarded = false;

	for (int i = 0; i < hooked_count; i++) {
		int function = hooked_functions[i].function;

		if (given == hooked_functions[i].hook)
			return given;	/* the driver found us, not itself */
		if (!same_stem(driver_names[function], symbol))
			continue;
		guarded = true;
		if (driver_find(function) == given)
			return hooked_functions[i].hook;
	}
	return guarded && !is_listed(symbol, given) ? NULL : given;
}

#define NAME_MAX 256			/* no function's name is longer */

/* The name, before the program can change it again; of one that is too long what fits, which is no function's. */
static void copy_name(char out[NAME_MAX], const volatile char *name)
{
	unsigned int at = 0;

	while (at < NAME_MAX - 1 && (out[at] = name[at]) != '\0')
		at++;
	out[at] = '\0';
}

/* What the driver gave is ours alone, until it is known what stands in for it. True: the program may have `given`. */
static bool replaced(const char *symbol, void **given, CUresult ret)
{
	if (ret != CUDA_SUCCESS || *given == NULL)
		return true;
	*given = stand_in(symbol, *given);
	return *given != NULL;
}

CUresult EXPORT cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
	char name[NAME_MAX];
	void *given;
	CUresult ret;

	if (NESTED || symbol == NULL || out == NULL)
		return DRIVER(cuGetProcAddress)(symbol, out, version, flags);
	copy_name(name, symbol);
	given = *out;
	ret = CALL(cuGetProcAddress, name, &given, version, flags);
	if (!replaced(name, &given, ret))
		ret = CUDA_ERROR_NOT_FOUND;
	*out = given;
	return ret;
}

/* This form says in its status what it did not find, and succeeds. */
CUresult EXPORT cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				    int *status)
{
	char name[NAME_MAX];
	void *given;
	CUresult ret;

	if (NESTED || symbol == NULL || out == NULL)
		return DRIVER(cuGetProcAddress_v2)(symbol, out, version, flags, status);
	copy_name(name, symbol);
	given = *out;
	ret = CALL(cuGetProcAddress_v2, name, &given, version, flags, status);
	if (!replaced(name, &given, ret) && status != NULL)
		*status = CU_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	*out = given;
	return ret;
}
