/* mps.h - shares of a card's multiprocessors, by NVIDIA MPS. */
#ifndef EDGEGPU_LIMITER_MPS_H
#define EDGEGPU_LIMITER_MPS_H

#include "charge.h"

/* Ask the driver whether contexts on the device are MPS's, and note it on the card. */
void mps_learn(struct card *card, CUdevice device);

/* The program chose a part of the multiprocessors itself: from now on its share is held by time. */
void mps_distrust(void);

#endif
