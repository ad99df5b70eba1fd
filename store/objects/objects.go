// Package objects stores immutable named objects in a directory or in an S3-compatible bucket. It
// does not know what they are for.
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

// A Place stores objects. The name of an object consists of parts of letters, digits, "-", "_" and
// ".", separated by slashes; no part begins with ".". All methods may be called concurrently.
type Place interface {
	// Put stores an object of at most 5 GiB, and replaces an object with the same name. The object
	// is durable when Put returns. Readers never see a part of it.
	Put(ctx context.Context, name string, r io.ReaderAt, size int64) error
	// Open opens an object for reading. The error is fs.ErrNotExist if there is none.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Delete deletes an object. A missing object is not an error.
	Delete(ctx context.Context, name string) error
	// List yields the objects whose names begin with prefix, sorted by name. It stops after the
	// first error.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
	// String returns the address that was passed to At.
	String() string
}

// An Object is the name and the size of an object, as List yields it.
type Object struct {
	Name string
	Size int64
}

// IsRemote reports whether an address names an S3 bucket.
func IsRemote(address string) bool { return strings.HasPrefix(address, "s3://") }

// ErrAddress is returned by At for a malformed address.
var ErrAddress = errors.New("malformed storage address")

// At returns the Place with an address: s3://BUCKET/PREFIX, or the path of a directory, which is
// created with the first object.
func At(address string, s3 S3) (Place, error) {
	rest, remote := strings.CutPrefix(address, "s3://")
	if remote {
		bucket, prefix, _ := strings.Cut(rest, "/")
		return newS3Bucket(address, bucket, strings.Trim(prefix, "/"), s3)
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

// checkName returns an error for the name of an object that is not valid or could lead out of the
// Place.
func checkName(name string) error {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.Trim(part, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") != "" {
			return fmt.Errorf("malformed object name %q", name)
		}
	}
	return nil
}
