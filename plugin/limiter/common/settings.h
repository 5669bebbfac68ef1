/* settings.h - where the limiter finds its files. */
#ifndef EDGEGPU_LIMITER_SETTINGS_H
#define EDGEGPU_LIMITER_SETTINGS_H

#define SETTING_MAX 256

const char *setting_folder(void);	/* holds `limits` and `usage` of the container */
const char *setting_driver(void);	/* holds the driver's own libraries */

/* Write "folder/name" to out; false: it does not fit. */
_Bool setting_path(char *out, unsigned long size, const char *folder, const char *name);

#endif
