#pragma once
// What liboctavo_s3.so offers; loaded when the first s3:// address is met (object_store.cpp).

#include "object_store/object_store.h"

extern "C" {
// The caller owns the result. Makes no request.
octavo::object_store::ObjectStore* octavo_s3_store();
}
