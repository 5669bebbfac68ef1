/* unwritable.c - a program that asks for a context three times: `unwritable [FILE]`; with a file, that is open in the place
 * of stderr. Exit status: 0 it was refused each time for want of memory. */
#include <fcntl.h>
#include <unistd.h>

#include "client.h"

int main(int argc, char **argv)
{
	CUcontext context;
	int refused = 0;

	if (argc > 1) {
		close(2);
		if (open(argv[1], O_RDWR | O_CREAT, 0600) != 2)
			return 2;
	}
	client_open("libcuda.so.1");
	if (CU(cuInit)(0) != CUDA_SUCCESS)
		return 2;
	for (int i = 0; i < 3; i++)
		refused += CU(cuDevicePrimaryCtxRetain)(&context, 0) == CUDA_ERROR_OUT_OF_MEMORY;
	return refused == 3 ? 0 : 1;
}
