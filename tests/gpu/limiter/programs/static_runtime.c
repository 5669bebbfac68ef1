/* static_runtime.c - linked with NVIDIA's runtime as an archive: takes 64 MiB at a time until it is refused or has MIB,
 * says how many MiB it got, and holds them: `static_runtime MIB`. */
#include <stdio.h>
#include <stdlib.h>

int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *at);
const char *cudaGetErrorName(int error);

int main(int argc, char **argv)
{
	int most = argc > 1 ? atoi(argv[1]) : 0, taken = 0, error = cudaFree(NULL);
	void *at;

	while (error == 0 && taken < most) {
		error = cudaMalloc(&at, 64u << 20);
		taken += error == 0 ? 64 : 0;
	}
	printf("{\"taken_mib\": %d, \"why\": \"%s\"}\n", taken, cudaGetErrorName(error));
	fflush(stdout);
	getchar();
	return 0;
}
