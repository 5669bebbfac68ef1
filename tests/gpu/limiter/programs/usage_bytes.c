/* usage_bytes.c - prints the size of a container's usage file. */
#include <stdio.h>

#include "usage.h"

int main(void)
{
	printf("%zu\n", sizeof(struct usage));
	return 0;
}
