import{j as o}from"./part-9de7709f83c9d4e7.js";var e=o(null);export{e as a};
