package signin

import (
	"strings"
	"testing"
	"time"
)

// TestTOTPVectors are those of RFC 6238 appendix B and RFC 4226 appendix D.
func TestTOTPVectors(t *testing.T) {
	secret := []byte("12345678901234567890")
	for at, want := range map[int64]string{
		59: "94287082", 1111111109: "07081804", 1111111111: "14050471", 1234567890: "89005924", 2000000000: "69279037", 20000000000: "65353130",
	} {
		if got := hotp(secret, uint64(at/totpPeriod), 8); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
	for counter, want := range []string{"755224", "287082", "359152", "969429", "338314", "254676", "287922", "162583", "399871", "520489"} {
		if got := hotp(secret, uint64(counter), 6); got != want {
			t.Errorf("counter %d: %s, want %s", counter, got, want)
		}
	}
}

func TestTOTPTakesAClockThatIsALittleOff(t *testing.T) {
	secret, now := []byte("12345678901234567890"), time.Unix(1_800_000_010, 0)
	step := now.Unix() / totpPeriod
	for off := int64(-3); off <= 3; off++ {
		want := step + off
		if off < -1 || off > 1 {
			want = -1
		}
		if got := totpStep(secret, hotp(secret, uint64(step+off), 6), now); got != want {
			t.Errorf("the code of %d steps off: %d, want %d", off, got, want)
		}
	}
	code := hotp(secret, uint64(step), 6)
	if got := totpStep(secret, code[:3]+" "+code[3:], now); got != step {
		t.Errorf("with a space: %d", got)
	}
}

func TestTOTPURI(t *testing.T) {
	got := totpURI("mail.example.com", "ann+x@example.com", "ABC")
	want := "otpauth://totp/Mailstead%20mail.example.com:ann+x@example.com?algorithm=SHA1&digits=6&issuer=Mailstead%20mail.example.com&period=30&secret=ABC"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func FuzzTOTPCode(f *testing.F) {
	for _, code := range []string{"", "000000", "287 082", "２８７０８２", "28708\x00", strings.Repeat("0", 100)} {
		f.Add(code, int64(59))
	}
	secret := []byte("12345678901234567890")
	f.Fuzz(func(t *testing.T, code string, at int64) {
		at &= 1<<40 - 1
		step := totpStep(secret, code, time.Unix(at, 0))
		if step >= 0 && strings.ReplaceAll(code, " ", "") != hotp(secret, uint64(step), 6) {
			t.Errorf("%q was taken at %d", code, at)
		}
	})
}
