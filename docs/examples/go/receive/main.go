// Receive takes events. It listens on 127.0.0.1:PORT (8000), behind a proxy that does HTTPS;
// MAILSTEAD_SECRET is the secret.
package main

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// genuine says whether a delivery comes from Mailstead: body is what came, byte for byte, before
// anything reads it.
func genuine(secret, timestamp, signatures string, body []byte) bool {
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 300*time.Second {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(append([]byte(timestamp+"."), body...))
	want := "v1=" + hex.EncodeToString(mac.Sum(nil))
	return slices.ContainsFunc(strings.Split(signatures, ","), func(s string) bool { return hmac.Equal([]byte(s), []byte(want)) })
}

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil || !genuine(os.Getenv("MAILSTEAD_SECRET"), r.Header.Get("X-Service-Timestamp"), r.Header.Get("X-Service-Signature"), body) {
		http.Error(w, "not genuine", http.StatusBadRequest)
		return
	}
	var event struct{ ID, Type string }
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Println(event.Type, event.ID) // An id may come twice: remember those that are done.
	w.WriteHeader(http.StatusNoContent)
}

func main() {
	log.Fatal(http.ListenAndServe("127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8000"), http.HandlerFunc(receive)))
}
