package rig

import (
	"bytes"
	"compress/gzip"
	varint "encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ProcStatus returns the figures of /proc/PID/status, sizes in KiB.
func ProcStatus(pid int) map[string]float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 {
			n, _ := strconv.ParseFloat(f[1], 64)
			out[f[0]] = n
		}
	}
	return out
}

// Profile takes a profile of the server and returns the sum of the value-th value of its samples.
func (i *Instance) Profile(kind string, value int) (sum float64) {
	i.T.Helper()
	file := filepath.Join(i.T.TempDir(), kind)
	if out, code := Run(i.T, "profile", kind, "--data", i.Dir, "--to", file); code != 0 {
		i.T.Fatalf("profile %s: %d %s", kind, code, out)
	}
	values, err := profileValues(file)
	if err != nil {
		i.T.Fatalf("profile %s: %v", kind, err)
	}
	for _, v := range values {
		sum += float64(v[value])
	}
	return sum
}

// profileValues reads the values of each sample of a profile in pprof's form: field 2 of a Profile
// is a Sample, whose field 2 is its values, packed where there are several.
func profileValues(file string) (list [][]int64, err error) {
	packed, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	err = eachField(text, func(field, _ uint64, sample []byte) error {
		if field != 2 {
			return nil
		}
		var values []int64
		err := eachField(sample, func(field, value uint64, packed []byte) error {
			switch {
			case field != 2:
			case packed == nil:
				values = append(values, int64(value))
			default:
				for len(packed) > 0 {
					v, n := varint.Uvarint(packed)
					if n <= 0 {
						return errors.New("a value is cut off")
					}
					values, packed = append(values, int64(v)), packed[n:]
				}
			}
			return nil
		})
		list = append(list, values)
		return err
	})
	return list, err
}

// eachField calls fn with each field of a protocol buffer: a number, or bytes.
func eachField(text []byte, fn func(field, number uint64, data []byte) error) error {
	for len(text) > 0 {
		tag, n := varint.Uvarint(text)
		v, m := varint.Uvarint(text[max(n, 0):])
		if n <= 0 || m <= 0 {
			return errors.New("a field is cut off")
		}
		text = text[n+m:]
		var data []byte
		switch {
		case tag&7 == 0:
		case tag&7 == 2 && v <= uint64(len(text)):
			data, text = text[:v], text[v:]
		default:
			return fmt.Errorf("a field has tag %d and value %d", tag, v)
		}
		if err := fn(tag>>3, v, data); err != nil {
			return err
		}
	}
	return nil
}

// Memory returns a figure of /proc/PID/status in MiB: VmHWM is the largest resident size of the
// process so far, VmRSS the present one.
func (i *Instance) Memory(field string) int {
	i.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", i.Cmd.Process.Pid))
	if err != nil {
		i.T.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		i.T.Fatal(err)
	}
	return kib >> 10
}

// OpenFiles returns the number of the process's file descriptors.
func (i *Instance) OpenFiles() int {
	i.T.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", i.Cmd.Process.Pid))
	if err != nil {
		i.T.Skip(err)
	}
	return len(list)
}
