// Package objects keeps named bytes that do not change, in a directory or in an S3-compatible
// bucket. It does not know what they are for.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"
)

// A Place keeps objects. Names are parts of letters, digits, "-", "_" and ".", with slashes
// between them; no part begins with ".". All methods may be called concurrently.
type Place interface {
	// Put stores an object of at most 5 GiB. It is durable when Put returns, and takes the place of
	// one of the same name. Nobody sees a part of it.
	Put(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Open opens an object; the error is fs.ErrNotExist where there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete deletes an object. One that is not there is no error.
	Delete(ctx context.Context, name string) error
	// List gives the objects whose names begin with prefix, sorted by name. It ends with the first
	// error.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// String is the address that Open was given.
	String() string
}

// An Object is what List says of one.
type Object struct {
	Name string
	Size int64
}

// IsRemote tells whether an address is that of a bucket.
func IsRemote(address string) bool { return strings.HasPrefix(address, "s3://") }

// ErrAddress is returned by At for an address that is no place.
var ErrAddress = errors.New("malformed address")

// At gives the place of an address: s3://BUCKET/PREFIX, or the path of a directory, which is made
// with the first object.
func At(address string, s3 S3) (Place, error) {
	rest, remote := strings.CutPrefix(address, "s3://")
	if remote {
		bucket, prefix, _ := strings.Cut(rest, "/")
		return newBucket(address, bucket, strings.Trim(prefix, "/"), s3)
	}
	if strings.Contains(address, "://") {
		return nil, fmt.Errorf("%q: %w: write s3://BUCKET/PREFIX or the path of a directory", address, ErrAddress)
	}
	dir, err := filepath.Abs(address)
	if err != nil {
		return nil, err
	}
	return &directory{address: address, dir: dir}, nil
}

// checkName refuses names that could lead elsewhere.
func checkName(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			return fmt.Errorf("malformed object name %q", name)
		}
	}
	return nil
}
