/* constructor.c - a library whose constructor calls the driver while another thread makes its first call:
 * `constructor LIBRARY [CALLS]`, after so many calls that open the driver. With PART it is that library. The constructor runs under the loader's lock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "client.h"

extern volatile int in_constructor;
extern CUresult (*retain)(CUcontext *out, CUdevice device);

#ifdef PART
static __attribute__((constructor)) void begin(void)
{
	CUcontext context;

	in_constructor = 1;
	usleep(300000);			/* until the other thread is where it gets to */
	MUST(retain(&context, 0) == CUDA_SUCCESS);
}
#else
volatile int in_constructor;
CUresult (*retain)(CUcontext *out, CUdevice device);

static void *call(void *nothing)
{
	CUcontext context;

	while (!in_constructor)
		usleep(1000);
	MUST(retain(&context, 0) == CUDA_SUCCESS);
	return nothing;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc < 2)
		return 2;
	client_open("libcuda.so.1");
	retain = CU(cuDevicePrimaryCtxRetain);
	for (int calls = argc > 2 ? atoi(argv[2]) : 0; calls > 0; calls--)
		MUST(CU(cuInit)(0) == CUDA_SUCCESS);
	MUST(pthread_create(&thread, NULL, call, NULL) == 0);
	MUST(dlopen(argv[1], RTLD_NOW) != NULL);
	MUST(pthread_join(thread, NULL) == 0);
	return 0;
}
#endif
