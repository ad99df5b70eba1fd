package archtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestMain runs the tests in the top folder of the module, so that paths are relative to the
// repository.
func TestMain(m *testing.M) {
	if err := goToTop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// goToTop changes to the folder that contains go.mod.
func goToTop() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return os.Chdir(dir)
		}
		above := filepath.Dir(dir)
		if above == dir {
			return errors.New("no folder above the package has a go.mod")
		}
		dir = above
	}
}
