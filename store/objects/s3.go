package objects

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 configures the access to S3-compatible buckets.
type S3 struct {
	Endpoint      string // such as "https://s3.example.com"; if "", that of AWS in the Region
	Region        string // "us-east-1" if ""
	Key, Secret   string // access key id and secret; if "", from AccessKeyFile or the environment
	AccessKeyFile string // see ReadAccessKey; if "", from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
	PathStyle     *bool  // whether URLs are https://endpoint/bucket/…; nil: true if Endpoint is set
	RootCAs       *x509.CertPool
}

const (
	maxListNames = 1000 // number of names in one response
	s3Tries      = 5
	// headerTimeout is how long the client waits for the headers of a response.
	headerTimeout = 30 * time.Second
)

// An s3Bucket is a Place in an S3-compatible bucket. All its names begin with prefix.
type s3Bucket struct {
	address, name, prefix string

	// put, open, remove and list are the operations of the client. They are functions so that no
	// field has the client's type: the linker would otherwise keep all of its hundred methods.
	put    func(ctx context.Context, name string, r io.Reader, size int64) error
	open   func(ctx context.Context, name string) (io.ReadCloser, error)
	remove func(ctx context.Context, name string) error
	list   func(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

func newS3Bucket(address, name, prefix string, o S3) (*s3Bucket, error) {
	if name == "" {
		return nil, fmt.Errorf("%q: %w: write s3://BUCKET/PREFIX", address, ErrAddress)
	}
	endpoint := cmp.Or(o.Endpoint, "https://s3."+cmp.Or(o.Region, "us-east-1")+".amazonaws.com")
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("S3 endpoint %q: %w: write https://HOST or https://HOST:PORT", endpoint, ErrAddress)
	}
	key, err := o.accessKey()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupDNS
	if o.PathStyle != nil && *o.PathStyle || o.PathStyle == nil && o.Endpoint != "" {
		lookup = minio.BucketLookupPath
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}
	transport.ResponseHeaderTimeout = headerTimeout
	client, err := minio.New(u.Host, &minio.Options{
		Creds: key, Secure: u.Scheme == "https", Region: cmp.Or(o.Region, "us-east-1"), BucketLookup: lookup,
		Transport: transport, MaxRetries: s3Tries,
	})
	if err != nil {
		return nil, fmt.Errorf("S3 endpoint %q: %w", endpoint, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &s3Bucket{
		address: address, name: name, prefix: prefix,
		put: func(ctx context.Context, object string, r io.Reader, size int64) error {
			_, err := client.PutObject(ctx, name, object, r, size, minio.PutObjectOptions{DisableMultipart: true, ContentType: "application/octet-stream"})
			return err
		},
		open: func(ctx context.Context, object string) (io.ReadCloser, error) {
			o, err := client.GetObject(ctx, name, object, minio.GetObjectOptions{})
			if err != nil {
				return nil, err
			}
			// GetObject makes no request before the first read; Stat makes it now.
			if _, err := o.Stat(); err != nil {
				return nil, errors.Join(err, o.Close())
			}
			return o, nil
		},
		remove: func(ctx context.Context, object string) error {
			return client.RemoveObject(ctx, name, object, minio.RemoveObjectOptions{})
		},
		list: func(ctx context.Context, prefix string) iter.Seq2[Object, error] {
			return func(yield func(Object, error) bool) {
				for info := range client.ListObjectsIter(ctx, name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true, MaxKeys: maxListNames}) {
					if !yield(Object{info.Key, info.Size}, info.Err) {
						return
					}
				}
			}
		},
	}, nil
}

// accessKey returns the access key in the options, or reads it from its file or from the
// environment.
func (o S3) accessKey() (*credentials.Credentials, error) {
	if o.Key != "" {
		return credentials.NewStaticV4(o.Key, o.Secret, ""), nil
	}
	if o.AccessKeyFile == "" {
		id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
		if id == "" || secret == "" {
			return nil, errors.New("no S3 access key is configured: set access_key_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
		return credentials.NewStaticV4(id, secret, os.Getenv("AWS_SESSION_TOKEN")), nil
	}
	key, secret, err := ReadAccessKey(o.AccessKeyFile)
	if err != nil {
		return nil, err
	}
	return credentials.NewStaticV4(key, secret, ""), nil
}

// ReadAccessKey reads an access key from a file of two lines: the key's id and its secret.
func ReadAccessKey(file string) (key, secret string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", "", fmt.Errorf("read access key: %w", err)
	}
	defer f.Close()
	var lines []string
	for scan := bufio.NewScanner(io.LimitReader(f, 4096)); scan.Scan(); {
		if line := strings.TrimSpace(scan.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) != 2 {
		return "", "", fmt.Errorf("read access key: %s must have two lines, the key id and the secret", file)
	}
	return lines[0], lines[1], nil
}

func (b *s3Bucket) String() string { return b.address }

func (b *s3Bucket) Put(ctx context.Context, name string, r io.ReaderAt, size int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	return b.wrapError("put", name, b.put(ctx, b.prefix+name, io.NewSectionReader(r, 0, size), size))
}

func (b *s3Bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	o, err := b.open(ctx, b.prefix+name)
	return o, b.wrapError("open", name, err)
}

func (b *s3Bucket) Delete(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	err := b.wrapError("delete", name, b.remove(ctx, b.prefix+name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (b *s3Bucket) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o, err := range b.list(ctx, b.prefix+prefix) {
			if err != nil {
				yield(Object{}, b.wrapError("list", prefix, err))
				return
			}
			o.Name = strings.TrimPrefix(o.Name, b.prefix)
			if checkName(o.Name) == nil && !yield(o, nil) {
				return
			}
		}
	}
}

// wrapError adds the operation and the name of the object to an error. If the bucket is missing,
// the error names the bucket.
func (b *s3Bucket) wrapError(operation, name string, err error) error {
	if err == nil {
		return nil
	}
	var answer minio.ErrorResponse
	errors.As(err, &answer)
	switch answer.Code {
	case minio.NoSuchKey:
		err = fs.ErrNotExist
	case minio.NoSuchBucket:
		return fmt.Errorf("there is no bucket %q: create it, or name another one", b.name)
	}
	return fmt.Errorf("%s %s in %s: %w", operation, name, b.address, err)
}
