package boltfile

import (
	"reflect"
	"unsafe"

	bolt "go.etcd.io/bbolt"
)

// AllocationForgetter returns a function that makes bbolt forget which transactions have allocated
// pages, if it remembers that for more than `most` pages. The function may be called while no
// transaction writes. ok is false if this version of bbolt keeps that elsewhere.
//
// bbolt remembers the transaction of each page that was taken from the list of free pages, as long
// as the page is in use. That is 40 bytes for 4 KiB, which over months comes to a hundredth of the
// database. bbolt needs it only to reuse a page early that was allocated and freed while the same
// reader was open. Without it, the page is reused after that reader has ended.
func AllocationForgetter(db *bolt.DB) (forget func(most int), ok bool) {
	field := func(v reflect.Value, name string) reflect.Value {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		return v.FieldByName(name)
	}
	allocs := field(field(field(reflect.ValueOf(db), "freelist"), "shared"), "allocs")
	if allocs.Kind() != reflect.Map || !allocs.CanAddr() {
		return func(int) {}, false
	}
	allocs = reflect.NewAt(allocs.Type(), unsafe.Pointer(allocs.UnsafeAddr())).Elem()
	return func(most int) {
		if allocs.Len() > most {
			allocs.Clear()
		}
	}, true
}
