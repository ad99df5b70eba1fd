package api

import (
	"bytes"
	"os"
	"testing"

	"github.com/mailstead/mailstead/e2e/rig"
)

// TestNoMethodIsCalledByName: a package that finds methods by reflection, such as text/template,
// makes the linker keep all exported methods of all packages, which are 4 MB. The program has the
// names of its functions for stack traces, so that it shows what is linked.
func TestNoMethodIsCalledByName(t *testing.T) {
	t.Parallel()
	path, err := rig.Binary()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("reflect.Value.Call")) {
		t.Fatal("the program does not name its functions")
	}
	for _, name := range []string{"reflect.Value.Method", "reflect.(*rtype).Method"} {
		if bytes.Contains(program, []byte(name)) {
			t.Errorf("%s is linked; go build -ldflags=-dumpdep tells for whom, after <ReflectMethod>", name)
		}
	}
}
