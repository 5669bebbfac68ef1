/* lookups.c - what it takes to look functions up by cuGetProcAddress, as the CUDA runtime does when it begins: `lookups
 * LIBRARY NAMES`, with a name in each line of a file. It prints the microseconds for all of them, the best of several runs. */
#include <string.h>
#include <time.h>

#include "client.h"

#define NAMES_MAX 2048
#define LENGTH_MAX 128
#define RUNS 200

static char names[NAMES_MAX][LENGTH_MAX];

static double now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	FILE *list = argc == 3 ? fopen(argv[2], "r") : NULL;
	__typeof__(&cuGetProcAddress_v2) look_up;
	double best = 1e18;
	int count = 0;

	MUST(list != NULL);
	while (count < NAMES_MAX && fgets(names[count], LENGTH_MAX, list) != NULL)
		names[count][strcspn(names[count], "\n")] = 0, count++;
	client_open(argv[1]);
	client_start();
	look_up = CU(cuGetProcAddress_v2);
	for (int run = 0; run < RUNS; run++) {
		double began = now_us(), took;

		for (int i = 0; i < count; i++) {
			void *found = NULL;
			int status;

			look_up(names[i], &found, 12060, 0, &status);
		}
		took = now_us() - began;
		best = took < best ? took : best;
	}
	printf("lookups %.2f\n", best);
	return 0;
}
