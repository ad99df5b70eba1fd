// Package peers has the end-to-end tests against software of others: mail servers, mail clients,
// resolvers, secondaries and an ACME authority. Without that software they are skipped.
package peers
