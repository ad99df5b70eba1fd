// Command generate writes the start set of the classifier to start.bin; `go generate
// ./mail/classify` runs it. It does not know what the tokens mean.
package main

import (
	"log"
	"os"

	"github.com/mailstead/mailstead/mail/classify/corpus"
)

func main() {
	set, err := corpus.StartSet()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("start.bin", set, 0o644); err != nil {
		log.Fatal(err)
	}
}
