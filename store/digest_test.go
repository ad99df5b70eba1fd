package store_test

import (
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/digest"
)

func init() {
	store.Contents = digest.Contents
	store.NoContents = digest.None
}
