package mailboxes

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/msg"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/store"
	"golang.org/x/text/unicode/norm"
)

// GenerateNamesIn is the body of generate_names. All fields are optional.
type GenerateNamesIn struct {
	Count  *int   `json:"count" min:"1" max:"100" example:"10" log:"true"` // 10 by default.
	Domain string `json:"domain" alias:"domain_id" max:"253" log:"true"`   // If given, each name has an address in it.
	// Used for every name, instead of one from the list.
	FirstName string `json:"first_name" max:"100"`
	// Used for every name, instead of one from the list.
	LastName string `json:"last_name" max:"100"`
	// A language, with or without a country: de, en, es, fr, it, nl, pl, pt or sv. English by
	// default.
	Locale  string    `json:"locale" max:"35" log:"true"`
	Styles  *[]string `json:"styles" min:"1" max:"6" enum:"first|first.last|firstlast|f.last|flast|first.l" log:"true"` // The styles of usernames; all by default.
	Exclude []string  `json:"exclude" max:"10000"`                                                                      // Usernames to leave out.
	Seed    *int64    `json:"seed" log:"true"`                                                                          // Makes the answer reproducible.
}

// A SuggestedName is an invented person with a username. email is null without a domain; available
// is also null for a domain that is not the account's.
type SuggestedName struct {
	Name      string  `json:"name" words:"ours"`
	FirstName string  `json:"first_name" words:"ours"`
	LastName  string  `json:"last_name" words:"ours"`
	Username  string  `json:"username" words:"ours"`
	Email     *string `json:"email" words:"ours"`
	Available *bool   `json:"available"` // Whether no mailbox has this address; null on a domain that is not yours.
}

// A usernameStyle builds a username from the first and last name in plain letters.
type usernameStyle struct {
	name string
	make func(first, last string) string
}

var usernameStyles = []usernameStyle{
	{"first", func(f, _ string) string { return f }},
	{"first.last", func(f, l string) string { return f + "." + l }},
	{"firstlast", func(f, l string) string { return f + l }},
	{"f.last", func(f, l string) string { return f[:1] + "." + l }},
	{"flast", func(f, l string) string { return f[:1] + l }},
	{"first.l", func(f, l string) string { return f + "." + l[:1] }},
}

// GenerateNames invents people with usernames, each different. With the same seed, the same request
// has the same answer, except for available. It returns fewer than count names only if exclude
// leaves no others.
func (s *Service) GenerateNames(_ context.Context, who core.Actor, in GenerateNamesIn) (*core.List[SuggestedName], error) {
	n, err := newNameGenerator(in)
	if err != nil {
		return nil, err
	}
	domain := in.Domain
	if domain != "" {
		domain, err = s.nameOfDomain(who, domain)
		if err != nil {
			return nil, err
		}
	}
	count := 10
	if in.Count != nil {
		count = *in.Count
	}
	out := n.drawNames(count)
	if domain == "" {
		return core.ListOf(out), nil
	}
	return core.ListOf(out), s.addEmails(who, out, domain)
}

// nameOfDomain returns the name of the account's domain with this name or id. Any other valid name
// is returned normalized.
func (s *Service) nameOfDomain(who core.Actor, nameOrID string) (name string, err error) {
	err = s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, nameOrID)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil {
			name = d.Name
		}
		return err
	})
	if err != nil || name != "" {
		return name, err
	}
	name, err = msg.NormalizeDomain(nameOrID)
	if err != nil {
		return "", core.Errorf("invalid_domain", "%.80q is not a valid domain name: %s", nameOrID, err).With("domain", "invalid_domain", "is not a domain name")
	}
	return name, nil
}

// addEmails sets the addresses and, on a domain of the account, whether they are free.
func (s *Service) addEmails(who core.Actor, names []SuggestedName, domain string) error {
	return s.Store.View(func(tx *store.Tx) error {
		d, err := core.FindDomain(tx, who, domain)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		ours := err == nil && !d.Gone()
		for i := range names {
			email := names[i].Username + "@" + domain
			names[i].Email = &email
			if !ours {
				continue
			}
			free := !store.AddressTaken(tx, d.ID, email)
			names[i].Available = &free
		}
		return nil
	})
}

// A nameGenerator draws people and usernames at random. The result depends only on the request and
// the seed.
type nameGenerator struct {
	rand   *rand.Rand
	first  []namePart // first names to draw from
	last   []namePart // last names to draw from
	styles []usernameStyle
	fold   *strings.Replacer // replaces letters of the locale by plain ones
	taken  map[string]bool   // usernames that must not be drawn
	own    string            // the given names in plain letters; a word in them does not count as rude
}

// A namePart is a first or last name, and its form in usernames.
type namePart struct{ name, plain string }

func newNameGenerator(in GenerateNamesIn) (*nameGenerator, error) {
	seed := rand.Uint64()
	if in.Seed != nil {
		seed = uint64(*in.Seed)
	}
	n := &nameGenerator{rand: rand.New(rand.NewPCG(seed, 0)), taken: map[string]bool{}}
	for _, name := range in.Exclude {
		n.taken[strings.ToLower(name)] = true
	}
	for _, name := range reservedNames {
		n.taken[name] = true
	}
	if err := n.useLocale(in.Locale); err != nil {
		return nil, err
	}
	if err := n.useStyles(in.Styles); err != nil {
		return nil, err
	}
	if err := n.useName(&n.first, "first_name", in.FirstName); err != nil {
		return nil, err
	}
	return n, n.useName(&n.last, "last_name", in.LastName)
}

// useLocale sets the lists of a language, with or without a country; "" is English.
func (n *nameGenerator) useLocale(locale string) error {
	language, _, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(locale), "_", "-"), "-")
	if language == "" {
		language = "en"
	}
	l, ok := nameLists[language]
	if !ok {
		known := strings.Join(slices.Sorted(maps.Keys(nameLists)), ", ")
		return core.Invalid("locale", "not_allowed", "must be one of %s", known)
	}
	n.fold = strings.NewReplacer(l.fold...)
	n.first, n.last = n.parseList(l.first), n.parseList(l.last)
	return nil
}

// parseList parses a list of names.
func (n *nameGenerator) parseList(names string) (out []namePart) {
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		out = append(out, namePart{name, n.plainLettersOf(name)})
	}
	return out
}

func (n *nameGenerator) useStyles(names *[]string) error {
	for _, s := range usernameStyles {
		if names == nil || slices.Contains(*names, s.name) {
			n.styles = append(n.styles, s)
		}
	}
	if names == nil {
		return nil
	}
	for _, name := range *names {
		if !slices.ContainsFunc(usernameStyles, func(s usernameStyle) bool { return s.name == name }) {
			return core.Invalid("styles", "not_allowed", "%.40q is not a style", name)
		}
	}
	return nil
}

// useName replaces the list by the given name.
func (n *nameGenerator) useName(list *[]namePart, field, name string) error {
	name = strings.TrimSpace(name)
	if name == "" {
		return nil
	}
	if err := core.CheckLine(field, name); err != nil {
		return err
	}
	plain := n.plainLettersOf(name)
	if plain == "" {
		return core.Invalid(field, "invalid", "has no letter that can be written as a to z")
	}
	*list = []namePart{{name, plain}}
	n.own += " " + plain
	return nil
}

// Limits of the attempts to draw one name. After plainTries attempts, usernames get a short number;
// after shortTries attempts, a long one.
const (
	nameTries   = 200
	plainTries  = 40
	shortTries  = 120
	maxUsername = 64
)

// drawNames draws up to count names.
func (n *nameGenerator) drawNames(count int) []SuggestedName {
	var out []SuggestedName
	for len(out) < count {
		name, ok := n.drawName()
		if !ok {
			break
		}
		n.taken[name.Username] = true
		out = append(out, name)
	}
	return out
}

// drawName draws a name with a username that is not taken. ok is false if it finds none.
func (n *nameGenerator) drawName() (name SuggestedName, ok bool) {
	for try := range nameTries {
		first, last := n.first[n.rand.IntN(len(n.first))], n.last[n.rand.IntN(len(n.last))]
		username := n.styles[n.rand.IntN(len(n.styles))].make(first.plain, last.plain)
		number := ""
		switch {
		case try >= shortTries:
			number = strconv.Itoa(100 + n.rand.IntN(1_000_000))
		case try >= plainTries:
			number = strconv.Itoa(2 + n.rand.IntN(98))
		}
		username = strings.TrimRight(username[:min(len(username), maxUsername-len(number))], ".") + number
		if !n.taken[username] && !n.isRude(username) {
			return SuggestedName{Name: first.name + " " + last.name, FirstName: first.name, LastName: last.name, Username: username}, true
		}
	}
	return SuggestedName{}, false
}

// plainLettersOf converts a name to the letters and digits that usernames may have.
func (n *nameGenerator) plainLettersOf(name string) string {
	var out strings.Builder
	for _, r := range norm.NFD.String(n.fold.Replace(strings.ToLower(norm.NFC.String(name)))) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			out.WriteRune(r)
		} else if text, ok := plainLetters[r]; ok {
			out.WriteString(text)
		}
	}
	return out.String()
}

// isRude reports whether a username contains a rude word. A word in the given names does not count.
func (n *nameGenerator) isRude(username string) bool {
	joined := strings.ReplaceAll(username, ".", "")
	return slices.ContainsFunc(rudeWords, func(w string) bool { return strings.Contains(joined, w) && !strings.Contains(n.own, w) })
}

// A nameList has common names of a language. The lists were compiled for this project from common
// knowledge of frequent names, and not copied from any collection; such facts are not protected,
// and the selection is under this project's own licence. Surnames that change with gender are left
// out.
type nameList struct {
	first string   // comma-separated
	last  string   // comma-separated
	fold  []string // pairs: lower-case letters, and their replacement in plain text
}

// plainLetters are letters that Unicode does not decompose into a plain letter and a mark.
var plainLetters = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th", 'ı': "i", 'ŋ': "n", 'ħ': "h",
}

var nameLists = map[string]nameList{
	"en": {
		first: `James, Mary, John, Linda, Robert, Susan, Michael, Karen, William, Lisa, David, Nancy, Richard, Betty, Joseph, Sandra,
			Thomas, Ashley, Charles, Emily, Daniel, Donna, Matthew, Michelle, Anthony, Carol, Mark, Amanda, Steven, Melissa,
			Andrew, Deborah, Paul, Stephanie, Joshua, Rebecca, Kenneth, Laura, Kevin, Helen, Brian, Sharon, George, Cynthia,
			Edward, Kathleen, Ronald, Amy, Timothy, Angela, Jason, Shirley, Ryan, Anna, Jacob, Brenda, Nicholas, Pamela, Eric,
			Emma, Jonathan, Nicole, Stephen, Ruth, Justin, Katherine, Scott, Samantha, Benjamin, Christine`,
		last: `Smith, Johnson, Williams, Brown, Jones, Miller, Davis, Wilson, Anderson, Thomas, Taylor, Moore, Jackson, Martin, Lee,
			Thompson, White, Harris, Clark, Lewis, Robinson, Walker, Young, Allen, King, Wright, Scott, Hill, Green, Adams,
			Nelson, Baker, Hall, Campbell, Mitchell, Carter, Roberts, Phillips, Evans, Turner, Parker, Collins, Edwards, Stewart,
			Morris, Murphy, Cook, Rogers, Morgan, Cooper, Peterson, Reed, Bailey, Bell, Kelly, Howard, Ward, Richardson, Watson,
			Brooks, Wood, Bennett, Gray, Hughes, Price, Myers, Foster, Sanders, Ross, Powell`,
	},
	"de": {
		first: `Anna, Lukas, Lea, Leon, Julia, Jonas, Laura, Felix, Lena, Maximilian, Sarah, Paul, Katharina, Tim, Sophie, Jan, Hannah,
			Moritz, Marie, Niklas, Johanna, Philipp, Clara, David, Lisa, Simon, Emma, Florian, Mia, Tobias, Sabine, Andreas,
			Petra, Thomas, Monika, Michael, Ursula, Stefan, Renate, Peter, Birgit, Klaus, Heike, Jürgen, Susanne, Wolfgang,
			Martina, Bernd, Claudia, Dieter, Karin, Matthias, Ingrid, Christian, Angelika, Sebastian, Nicole, Markus, Stefanie,
			Alexander, Franziska, Benjamin, Melanie, Dominik, Greta, Jakob, Ida, Anton`,
		last: `Müller, Schmidt, Schneider, Fischer, Weber, Meyer, Wagner, Becker, Schulz, Hoffmann, Schäfer, Koch, Bauer, Richter,
			Klein, Wolf, Schröder, Neumann, Schwarz, Zimmermann, Braun, Krüger, Hofmann, Hartmann, Lange, Schmitt, Werner,
			Schmitz, Krause, Meier, Lehmann, Schmid, Schulze, Maier, Köhler, Herrmann, König, Walter, Mayer, Huber, Kaiser,
			Fuchs, Peters, Lang, Scholz, Möller, Weiß, Jung, Hahn, Schubert, Vogel, Friedrich, Keller, Günther, Frank, Berger,
			Winkler, Roth, Beck, Lorenz, Baumann, Franke, Albrecht, Schuster, Simon, Ludwig, Böhm, Winter, Kraus`,
		fold: []string{"ä", "ae", "ö", "oe", "ü", "ue"},
	},
	"fr": {
		first: `Marie, Jean, Camille, Pierre, Léa, Nicolas, Manon, Julien, Chloé, Thomas, Emma, Antoine, Inès, Alexandre, Sarah, Maxime,
			Laura, Hugo, Julie, Lucas, Pauline, Louis, Mathilde, Paul, Marion, Arthur, Anaïs, Clément, Clara, Romain, Sophie,
			Guillaume, Céline, François, Isabelle, Philippe, Nathalie, Laurent, Sylvie, Olivier, Catherine, Christophe, Valérie,
			Éric, Sandrine, Stéphane, Hélène, Frédéric, Élodie, Sébastien, Aurélie, Vincent, Émilie, Mathieu, Charlotte, Jérôme,
			Juliette, Benoît, Margaux, Adrien, Élise, Gabriel, Noémie, Raphaël, Jeanne, Étienne, Alice, Rémi`,
		last: `Martin, Bernard, Dubois, Thomas, Robert, Richard, Petit, Durand, Leroy, Moreau, Simon, Laurent, Lefebvre, Michel, Garcia,
			Bertrand, Roux, Vincent, Fournier, Morel, Girard, André, Mercier, Dupont, Lambert, Bonnet, François, Martinez,
			Legrand, Garnier, Faure, Rousseau, Blanc, Guérin, Muller, Henry, Roussel, Nicolas, Perrin, Morin, Mathieu, Clément,
			Gauthier, Dumont, Lopez, Fontaine, Chevalier, Robin, Masson, Sanchez, Gérard, Nguyen, Boyer, Denis, Lemaire, Duval,
			Joly, Gautier, Roger, Roche, Roy, Noël, Meyer, Lucas, Meunier, Marchand, Dufour, Blanchard, Marie, Brunet`,
	},
	"es": {
		first: `María, Antonio, Carmen, José, Ana, Manuel, Laura, Francisco, Lucía, David, Marta, Juan, Cristina, Javier, Paula, Daniel,
			Elena, Carlos, Sara, Miguel, Isabel, Alejandro, Pilar, Rafael, Raquel, Pedro, Rosa, Ángel, Beatriz, Pablo, Silvia,
			Sergio, Patricia, Fernando, Andrea, Jorge, Irene, Luis, Alba, Alberto, Teresa, Álvaro, Julia, Diego, Nuria, Adrián,
			Mónica, Raúl, Rocío, Iván, Alicia, Enrique, Sonia, Rubén, Natalia, Óscar, Inés, Ramón, Eva, Andrés, Clara, Vicente,
			Marina, Joaquín, Sofía, Santiago, Claudia, Víctor, Daniela, Hugo`,
		last: `García, Rodríguez, González, Fernández, López, Martínez, Sánchez, Pérez, Gómez, Martín, Jiménez, Hernández, Ruiz, Díaz,
			Moreno, Muñoz, Álvarez, Romero, Gutiérrez, Alonso, Navarro, Torres, Domínguez, Ramos, Vázquez, Ramírez, Gil, Serrano,
			Morales, Molina, Blanco, Suárez, Castro, Ortega, Delgado, Ortiz, Marín, Rubio, Núñez, Medina, Sanz, Castillo,
			Iglesias, Cortés, Garrido, Santos, Guerrero, Lozano, Cano, Cruz, Méndez, Flores, Prieto, Herrera, Peña, León,
			Márquez, Cabrera, Gallego, Calvo, Vidal, Campos, Reyes, Vega, Fuentes, Carrasco, Aguilar, Caballero, Nieto, Pascual`,
	},
	"it": {
		first: `Giulia, Marco, Francesca, Andrea, Chiara, Alessandro, Sara, Luca, Martina, Matteo, Giorgia, Lorenzo, Sofia, Davide, Alice,
			Francesco, Elena, Giovanni, Anna, Giuseppe, Maria, Antonio, Valentina, Stefano, Federica, Roberto, Silvia, Paolo,
			Laura, Riccardo, Elisa, Simone, Paola, Federico, Beatrice, Gabriele, Aurora, Tommaso, Ilaria, Edoardo, Claudia,
			Filippo, Monica, Nicola, Cristina, Daniele, Roberta, Emanuele, Barbara, Michele, Caterina, Pietro, Serena, Salvatore,
			Marta, Vincenzo, Greta, Alberto, Irene, Giacomo, Emma, Leonardo, Camilla, Massimo, Lucia, Fabio, Noemi, Enrico`,
		last: `Rossi, Russo, Ferrari, Esposito, Bianchi, Romano, Colombo, Ricci, Marino, Greco, Bruno, Gallo, Conti, De Luca, Mancini,
			Costa, Giordano, Rizzo, Lombardi, Moretti, Barbieri, Fontana, Santoro, Mariani, Rinaldi, Caruso, Ferrara, Galli,
			Martini, Leone, Longo, Gentile, Martinelli, Vitale, Lombardo, Serra, Coppola, De Santis, Marchetti, Parisi, Villa,
			Conte, Ferraro, Ferri, Fabbri, Bianco, Marini, Grasso, Valentini, Messina, Sala, De Angelis, Gatti, Pellegrini,
			Palumbo, Sanna, Farina, Rizzi, Monti, Cattaneo, Morelli, Amato, Silvestri, Mazza, Testa, Grassi, Pellegrino, Carbone,
			Giuliani, Benedetti`,
	},
	"pt": {
		first: `Maria, João, Ana, José, Beatriz, António, Mariana, Francisco, Inês, Manuel, Carolina, Pedro, Leonor, Luís, Matilde, Carlos,
			Catarina, Paulo, Sofia, Tiago, Joana, Miguel, Marta, Rui, Rita, Nuno, Sara, Ricardo, Francisca, Diogo, Teresa, André,
			Margarida, Gonçalo, Patrícia, Bruno, Sandra, Rafael, Sílvia, Daniel, Helena, Hugo, Mónica, Duarte, Cláudia, Vasco,
			Cristina, Afonso, Isabel, Bernardo, Filipa, Henrique, Raquel, Rodrigo, Lúcia, Gabriel, Júlia, Lucas, Larissa,
			Gustavo, Camila, Eduardo, Fernanda, Felipe, Letícia, Marcelo, Vitória, Sérgio`,
		last: `Silva, Santos, Ferreira, Pereira, Oliveira, Costa, Rodrigues, Martins, Sousa, Fernandes, Gonçalves, Gomes, Lopes, Marques,
			Alves, Almeida, Ribeiro, Carvalho, Teixeira, Moreira, Correia, Mendes, Nunes, Soares, Vieira, Monteiro,
			Cardoso, Rocha, Neves, Coelho, Cruz, Cunha, Pires, Ramos, Reis, Simões, Antunes, Matos, Fonseca, Machado, Araújo,
			Barbosa, Tavares, Lourenço, Castro, Figueiredo, Azevedo, Freitas, Magalhães, Henriques, Lima, Guerreiro, Batista,
			Faria, Miranda, Barros, Morais, Nogueira, Esteves, Anjos, Leite, Campos, Mota, Macedo, Vaz, Valente, Amaral, Sampaio`,
	},
	"nl": {
		first: `Emma, Daan, Julia, Sem, Sophie, Lucas, Lotte, Levi, Anna, Finn, Eva, Noah, Sara, Milan, Lisa, Bram, Fleur, Luuk, Femke,
			Jesse, Iris, Thijs, Anouk, Lars, Maud, Thomas, Roos, Ruben, Sanne, Jan, Marieke, Peter, Esther, Hans, Monique, Johan,
			Ingrid, Willem, Annemarie, Henk, Wilma, Erik, Saskia, Mark, Petra, Jeroen, Linda, Martijn, Kim, Sander, Nienke,
			Bart, Joke, Maarten, Marloes, Jasper, Karin, Stijn, Hanneke, Tim, Manon, Koen, Elise, Niels, Laura, Wouter, Mirjam,
			Gijs, Tess, Rik`,
		last: `de Jong, Jansen, de Vries, van den Berg, van Dijk, Bakker, Janssen, Visser, Smit, Meijer, de Boer, Mulder, de Groot, Bos,
			Vos, Peters, Hendriks, van Leeuwen, Dekker, Brouwer, de Wit, Dijkstra, Smits, de Graaf, van der Meer, van der Linden,
			Kok, Jacobs, de Haan, Vermeulen, van den Heuvel, van der Veen, van den Broek, de Bruin, van der Heijden, Schouten,
			van Beek, Willems, van Vliet, Hoekstra, Maas, Verhoeven, Koster, van Dam, Prins, Blom, Huisman, Peeters,
			de Jonge, Kuipers, van Veen, Post, Kuiper, Veenstra, Kramer, van den Brink, Scholten, van Wijk, Postma, Martens,
			Vink, de Ruiter, Timmermans, Groen, Gerritsen, Jonker, van Loon, Boer, van der Velde, Willemsen`,
	},
	"pl": {
		first: `Anna, Piotr, Katarzyna, Krzysztof, Maria, Andrzej, Małgorzata, Tomasz, Agnieszka, Paweł, Barbara, Jan, Ewa, Michał,
			Magdalena, Marcin, Elżbieta, Jakub, Krystyna, Adam, Joanna, Marek, Aleksandra, Łukasz, Zofia, Grzegorz, Monika,
			Mateusz, Teresa, Wojciech, Natalia, Mariusz, Danuta, Dariusz, Julia, Zbigniew, Karolina, Maciej, Dorota, Rafał,
			Marta, Robert, Beata, Kamil, Halina, Jacek, Jadwiga, Dawid, Irena, Szymon, Alicja, Kacper, Jolanta, Bartosz, Iwona,
			Artur, Grażyna, Sebastian, Paulina, Damian, Hanna, Przemysław, Justyna, Filip, Bożena, Daniel, Zuzanna, Karol`,
		last: `Nowak, Wójcik, Kowalczyk, Woźniak, Mazur, Krawczyk, Kaczmarek, Zając, Król, Wieczorek, Wróbel, Stępień, Adamczyk, Dudek,
			Pawlak, Sikora, Walczak, Baran, Michalak, Szewczyk, Ostrowicz, Pietrzak, Duda, Włodarczyk, Marciniak, Bąk, Jasik,
			Kubiak, Kołodziej, Kaźmierczak, Sobczak, Konieczny, Głowacz, Urban, Czerwik, Zięba, Wasik, Krupa, Kozioł, Mróz,
			Lis, Mazurek, Tomczak, Cieślak, Kania, Kaczmarczyk, Janik, Bednarek, Gajda, Banaś, Leśniak, Wrona,
			Tomczyk, Kozak, Matuszak, Wilk, Sowa, Kuś, Stachowiak, Majcher, Szulc, Kot, Bielak, Domagała, Gołąb, Siwiec, Owczarek,
			Drozd, Szymczak, Polak`,
	},
	"sv": {
		first: `Anna, Erik, Maria, Lars, Eva, Karl, Karin, Anders, Emma, Johan, Kristina, Per, Lena, Nils, Sara, Mikael, Kerstin, Jan,
			Malin, Hans, Ingrid, Peter, Marie, Daniel, Elin, Fredrik, Jenny, Andreas, Hanna, Magnus, Birgitta, Stefan, Linda,
			Mats, Ida, Jonas, Johanna, Björn, Susanne, Mattias, Sofia, Gustav, Julia, Oskar, Elsa, Henrik, Ulla, Viktor, Åsa,
			Axel, Camilla, Simon, Helena, Filip, Linnéa, Anton, Sandra, Emil, Agneta, David, Frida, Jakob, Matilda, Alexander,
			Ebba, Niklas, Klara, Göran, Märta, Håkan`,
		last: `Andersson, Johansson, Karlsson, Nilsson, Eriksson, Larsson, Olsson, Persson, Svensson, Gustafsson, Pettersson, Jonsson,
			Jansson, Hansson, Bengtsson, Jönsson, Lindberg, Jakobsson, Magnusson, Lindström, Olofsson, Lindqvist, Lindgren,
			Berg, Axelsson, Bergström, Lundberg, Lind, Lundgren, Lundqvist, Mattsson, Berglund, Fredriksson, Sandberg,
			Henriksson, Forsberg, Sjöberg, Ali, Wallin, Engström, Eklund, Danielsson, Lundin, Håkansson, Björk, Bergman,
			Gunnarsson, Wikström, Holm, Isaksson, Fransson, Samuelsson, Bergqvist, Nyström, Holmberg, Arvidsson, Löfgren,
			Söderberg, Nyberg, Blomqvist, Claesson, Nordström, Mårtensson, Lundström, Björklund, Eliasson, Berggren, Sandström,
			Nordin, Åberg, Ström`,
	},
}

// rudeWords must not result from a name and a style. It is not a list of all bad words: it has
// those that initials and surnames of the languages above can form.
var rudeWords = []string{
	"anus", "arsch", "asshole", "bastard", "bitch", "bollock", "boob", "cazzo", "clit", "cock", "coglion", "connard", "crap", "cum", "cunt",
	"dick", "dildo", "dumb", "fag", "fart", "ficke", "fitta", "foder", "fotze", "fuck", "hitler", "hoer", "hure", "idiot", "jizz", "kike",
	"klootzak", "kurva", "kurwa", "kuk", "kut", "lul", "merda", "merde", "mierda", "moron", "muschi", "nazi", "nutte", "paki",
	"penis", "perv", "pijpen", "piss", "poop", "porn", "prick", "puta", "putain", "puttan", "pussy", "rape", "salope",
	"scum", "sex", "shit", "slut", "sperm", "spic", "stronz", "tits", "titt", "turd", "twat", "vagin", "wank", "whore",
}
