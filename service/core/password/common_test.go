package password

import (
	"strings"
	"testing"
)

func TestCommonPasswords(t *testing.T) {
	if n := strings.Count(commonPasswords, "\n"); n != 10_000 || commonPasswords != strings.ToLower(commonPasswords) {
		t.Errorf("%d common passwords", n)
	}
}
