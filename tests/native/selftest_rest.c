/* selftest_rest.c - the names that selftest_standin.c has no function for, so that a program finds each. */
#define FUNCTION(name, since, hooked) \
	__attribute__((weak)) int name(void); \
	int name(void) { return 801; }
#include "functions.def"
