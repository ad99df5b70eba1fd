package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/mailstead/mailstead/store"
)

// ErrNoIdentity is returned for an encrypted backup if none of the identities can decrypt it.
var ErrNoIdentity = errors.New("the backup is encrypted, and none of the given identities opens it: give the age identity file that belongs to one of its recipients (--age-identity FILE)")

// A sealedObject is a compressed and encrypted object, ready to be stored. It is in an unlinked
// temporary file.
type sealedObject struct {
	*os.File
	size  int64
	plain int64  // bytes before compression
	sum   string // SHA-256, hex
}

// sealToFile writes the output of write, compressed and encrypted, to a temporary file.
func (t *Target) sealToFile(write func(io.Writer) error) (_ *sealedObject, err error) {
	f, err := os.CreateTemp(t.Temp, "backup-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	h := sha256.New()
	n, plain := &byteCounter{w: io.MultiWriter(f, h)}, new(byteCounter)
	err = seal(n, t.Recipients, func(w io.Writer) error {
		plain.w = w
		return write(plain)
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &sealedObject{f, n.n, plain.n, hex.EncodeToString(h.Sum(nil))}, nil
}

// seal writes the output of write to `to`, compressed and, if there are recipients, encrypted.
func seal(to io.Writer, recipients []age.Recipient, write func(io.Writer) error) error {
	end := func() error { return nil }
	if len(recipients) > 0 {
		encrypted, err := age.Encrypt(to, recipients...)
		if err != nil {
			return fmt.Errorf("encrypt with age: %w", err)
		}
		to, end = encrypted, encrypted.Close
	}
	// One goroutine and windows of 1 MiB limit the load, since mail is served meanwhile.
	packed, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return err
	}
	if err := write(packed); err != nil {
		return err
	}
	return errors.Join(packed.Close(), end())
}

// A byteCounter counts the bytes that are written through it.
type byteCounter struct {
	w io.Writer
	n int64
}

func (c *byteCounter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// A pacedStream is a reader or a writer that pauses between its reads or writes, so that a backup
// does not slow down the delivery of mail.
type pacedStream struct {
	ctx  context.Context
	pace *store.Pacer
	at   io.ReaderAt // set for a reader; otherwise to is set
	to   io.Writer
}

func (p *pacedStream) ReadAt(b []byte, off int64) (int, error) {
	if err := p.pace.Rest(p.ctx); err != nil {
		return 0, err
	}
	return p.at.ReadAt(b, off)
}

func (p *pacedStream) Write(b []byte) (int, error) {
	if err := p.pace.Rest(p.ctx); err != nil {
		return 0, err
	}
	return p.to.Write(b)
}

// The first bytes of encrypted and of compressed data.
const (
	ageMagic  = "age-encryption.org/"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

// unseal returns a reader of the decrypted and decompressed data. The caller must close it; that
// does not close `from`.
func unseal(from io.Reader, identities []age.Identity) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(from, 64<<10)
	if begin, _ := in.Peek(len(ageMagic)); string(begin) == ageMagic {
		if len(identities) == 0 {
			return nil, ErrNoIdentity
		}
		plain, err := age.Decrypt(in, identities...)
		if errors.As(err, new(*age.NoIdentityMatchError)) {
			return nil, ErrNoIdentity
		}
		if err != nil {
			return nil, fmt.Errorf("decrypt with age: %w", err)
		}
		in = bufio.NewReaderSize(plain, 64<<10)
	}
	if begin, _ := in.Peek(len(zstdMagic)); string(begin) != zstdMagic {
		return nil, fmt.Errorf("the data is neither encrypted nor compressed: %w", ErrDamaged)
	}
	out, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, err
	}
	return out.IOReadCloser(), nil
}
