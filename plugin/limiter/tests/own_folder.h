/* own_folder.h - the settings of a program that has parts of the limiter in it: files lie in `test_folder`, and there is
 * no driver. */
#ifndef EDGEGPU_LIMITER_TESTS_OWN_FOLDER_H
#define EDGEGPU_LIMITER_TESTS_OWN_FOLDER_H

#include <stdio.h>

#include "../common/driver.h"
#include "../common/settings.h"

static const char *test_folder;

void *driver_open(void)
{
	return NULL;
}

const char *setting_folder(void)
{
	return test_folder;
}

_Bool setting_path(char *out, unsigned long size, const char *folder, const char *name)
{
	return (unsigned long)snprintf(out, size, "%s/%s", folder, name) < size;
}

#endif
