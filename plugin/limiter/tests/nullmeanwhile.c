/* nullmeanwhile.c - the driver that answers at once, with a second thread of the program in each call: the function that
 * null_driver_calls was given last is called when the call begins, and when its answer is written. */
#define cuMemPoolCreate quiet_pool_create
#include "nulldriver.c"
#undef cuMemPoolCreate

#define MEANWHILE(...)                                                                            \
	do {                                                                                      \
		CUresult ret;                                                                     \
		call_back();                                                                      \
		ret = __VA_ARGS__;                                                                \
		call_back();                                                                      \
		return ret;                                                                       \
	} while (0)

API CUresult cuMemPoolCreate(CUmemoryPool *out, const struct CUmem_pool_props *props)
{
	MEANWHILE(quiet_pool_create(out, props));
}
