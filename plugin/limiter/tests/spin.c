/* spin.c - a kernel spins until another stream's kernel runs, on the driver that answers at once: the
 * launch that it waits for must get through, whatever the container owes. */
#include <unistd.h>

#include "client.h"

int main(void)
{
	__typeof__(&cuLaunchKernel) launch;

	alarm(20);
	client_open("libcuda.so.1");
	client_start();
	launch = CU(cuLaunchKernel);
	for (int i = 0; i < 3; i++) {
		MUST(launch((void *)0x51, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x10, NULL, NULL) == CUDA_SUCCESS);
		/* One more in the stream that spins comes after it, and does not wait for it here. */
		MUST(launch((void *)0x51, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x10, NULL, NULL) == CUDA_SUCCESS);
		MUST(launch((void *)0x52, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x20, NULL, NULL) == CUDA_SUCCESS);
		MUST(CU(cuStreamSynchronize)((CUstream)0x10) == CUDA_SUCCESS ||
		     CU(cuStreamSynchronize)((CUstream)0x10) == CUDA_ERROR_NOT_SUPPORTED);
	}
	return 0;
}
