/* cuda_lookup.c - cuGetProcAddress: the way by which the CUDA runtime finds every function.
 *
 * The driver is asked first, with the program's own version and flags; the hook is chosen by the
 * pointer that it returned, since a name alone stands for functions of different arguments. A pointer
 * that is no known form of a function that we stand in is withheld: it could take memory unseen. */
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
	return guarded ? NULL : given;
}

/* True: the program may have what it was given, or what now stands in its place. */
static bool replaced(const char *symbol, void **out, CUresult ret)
{
	if (ret != CUDA_SUCCESS || symbol == NULL || out == NULL || *out == NULL)
		return true;
	*out = stand_in(symbol, *out);
	return *out != NULL;
}

CUresult EXPORT cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
	CUresult ret = CALL(cuGetProcAddress, symbol, out, version, flags);

	return NESTED || replaced(symbol, out, ret) ? ret : CUDA_ERROR_NOT_FOUND;
}

/* This form says in its status what it did not find, and succeeds. */
CUresult EXPORT cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
				    int *status)
{
	CUresult ret = CALL(cuGetProcAddress_v2, symbol, out, version, flags, status);

	if (!NESTED && !replaced(symbol, out, ret) && status != NULL)
		*status = CU_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return ret;
}
