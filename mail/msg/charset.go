package msg

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
)

// mailCharsets are names that mail uses and the indexes lack or take otherwise.
var mailCharsets = map[string]encoding.Encoding{
	"utf-16":     unicode.UTF16(unicode.BigEndian, unicode.UseBOM), // RFC 2781 §4.3
	"hz-gb-2312": simplifiedchinese.HZGB2312,
	"gb2312":     simplifiedchinese.GB18030,
	"gbk":        simplifiedchinese.GB18030,
	"cp936":      simplifiedchinese.GB18030,
	"ms936":      simplifiedchinese.GB18030,
	"cp932":      japanese.ShiftJIS,
	"cp949":      korean.EUCKR,
	"ms949":      korean.EUCKR,
	"ks_c_5601":  korean.EUCKR,
	"cp950":      traditionalchinese.Big5,
	"ms950":      traditionalchinese.Big5,
	"cp850":      charmap.CodePage850,
	"cp437":      charmap.CodePage437,
	"cp858":      charmap.CodePage858,
}

// lookupCharset returns nil for an unknown charset.
func lookupCharset(name string) encoding.Encoding {
	if enc := mailCharsets[name]; enc != nil {
		return enc
	}
	if enc, err := htmlindex.Get(name); err == nil && enc != encoding.Replacement {
		return enc
	}
	if enc, err := ianaindex.MIME.Encoding(name); err == nil && enc != nil {
		return enc
	}
	if enc, err := ianaindex.IANA.Encoding(name); err == nil {
		return enc
	}
	return nil
}

// toUTF8 decodes text in the named charset. Bytes of an unknown or undeclared charset
// are UTF-8 if they can be, else windows-1252.
func toUTF8(b []byte, charset string) string {
	charset = strings.ToLower(strings.Trim(charset, " \t\"'"))
	if len(charset) > 64 {
		charset = ""
	}
	switch charset {
	case "utf-8", "utf8":
		return strings.ToValidUTF8(string(b), "\uFFFD")
	case "", "us-ascii", "ascii", "unknown-8bit", "x-unknown", "unknown", "default":
		return guessUTF8(b)
	}
	enc := lookupCharset(charset)
	if enc == nil {
		return guessUTF8(b)
	}
	out, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return guessUTF8(b)
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}

func guessUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+len(b)/2)
	for _, c := range b {
		out = utf8.AppendRune(out, charmap.Windows1252.DecodeByte(c))
	}
	return string(out)
}
