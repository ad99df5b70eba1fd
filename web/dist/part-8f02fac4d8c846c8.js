import{j as o}from"./part-fb1cdce3c18ef7b3.js";var e=o(null);export{e as a};
