/* loader.c BYTES... - a program that loads the driver by its name and asks for each amount; prints the statuses. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int (*call)();

int main(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	unsigned long long at;

	if (driver == NULL)
		return 2;
	((call)dlsym(driver, "cuInit"))(0);
	((call)dlsym(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
	((call)dlsym(driver, "cuCtxSetCurrent"))(context);
	for (int i = 1; i < argc; i++)
		printf("%s%d", i > 1 ? " " : "", ((call)dlsym(driver, "cuMemAlloc_v2"))(&at, strtoull(argv[i], NULL, 10)));
	printf("\n");
	return 0;
}
