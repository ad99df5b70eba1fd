import{j as o}from"./part-5b7b3f9a22677910.js";var e=o(null);export{e as a};
