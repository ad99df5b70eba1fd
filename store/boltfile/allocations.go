package boltfile

import (
	"reflect"
	"unsafe"

	bolt "go.etcd.io/bbolt"
)

// Allocations gives a function that has bbolt forget which transactions have allocated pages, if it
// knows that of more than most. It may be called while no transaction writes. ok is false where
// this version of bbolt keeps it elsewhere.
//
// bbolt keeps the transaction of each page that was taken from the list of free pages, for as long
// as the page is in use: 40 bytes for 4 KiB, which in months comes to a hundredth of the database.
// It needs them only to use a page again that was allocated and freed while one reader was open all
// the time; what it does not know it keeps until that reader has ended.
func Allocations(db *bolt.DB) (forget func(most int), ok bool) {
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
