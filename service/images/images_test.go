package images

import (
	"testing"
)

// TestTypeOf: the content type comes from the image's first bytes, and is always a raster
// format.
func TestTypeOf(t *testing.T) {
	for head, want := range map[string]string{
		"\x89PNG\r\n\x1a\n": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a...": "image/gif", "RIFF\x00\x00\x00\x00WEBPVP8 ": "image/webp",
		"\x00\x00\x00\x1cftypavif": "image/avif", "\x00\x00\x00\x1cftypavis": "image/avif", "\x00\x00\x00\x1cftypmp42": "",
		"<svg xmlns=": "", "<?xml version": "", "<html>": "", "\x00\x00\x01\x00": "", "BM": "", "": "", "GIF": "", "%PDF-": "",
	} {
		if got := typeOf([]byte(head)); got != want {
			t.Errorf("%q is %q, want %q", head, got, want)
		}
	}
}
