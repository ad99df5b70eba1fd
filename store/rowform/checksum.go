package rowform

import (
	"encoding/binary"
	"hash/crc32"
)

// SumSize is the size of a checksum in bytes.
const SumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Sum computes the checksums of one bucket's rows (CRC-32C).
type Sum uint32

// SumOf returns the Sum of the bucket with this name.
func SumOf(bucket string) Sum {
	return Sum(crc32.Update(crc32.Checksum([]byte(bucket), castagnoli), castagnoli, []byte{0}))
}

// checksum returns the checksum of a row.
func (s Sum) checksum(key, row []byte) uint32 {
	return crc32.Update(crc32.Update(uint32(s), castagnoli, key), castagnoli, row)
}

// Seal appends the checksum to a row.
func (s Sum) Seal(key, row []byte) []byte {
	return binary.BigEndian.AppendUint32(row, s.checksum(key, row))
}

// Open verifies a row and returns it without its checksum. The error is ErrDamaged.
func (s Sum) Open(key, row []byte) ([]byte, error) {
	n := len(row) - SumSize
	if n < 0 || binary.BigEndian.Uint32(row[n:]) != s.checksum(key, row[:n]) {
		return nil, ErrDamaged
	}
	return row[:n:n], nil
}
